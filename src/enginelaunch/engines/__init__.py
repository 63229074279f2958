"""The engines that ship with enginelaunch, one package or module each."""
