"""Generated tasks of clicks for our desktop image (``panel``), and attempts of given actions (``playing``)."""
