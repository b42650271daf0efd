"""One checkpoint from several: choosing them, reading them safely, and their arithmetic mean."""
