"""What a person gives on the command line: options, files of tasks and of finished work, ids of records."""
