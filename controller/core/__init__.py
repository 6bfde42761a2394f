"""What the control loop is made of: most parts own one kind of state, which ``control_loop`` alone changes."""
