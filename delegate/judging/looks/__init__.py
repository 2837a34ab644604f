"""What a judge may look at before it answers: the finished work, a command in a copy of it, the state of things."""
