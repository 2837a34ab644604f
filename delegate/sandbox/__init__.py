"""Where a child's hands are tied: its folder (`workspace`) and its commands (`commands`)."""
