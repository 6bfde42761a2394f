"""What the control loop is made of: each part owns one kind of state and is asked by ``control_loop`` alone."""
