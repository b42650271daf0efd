"""What --attention and --maps choose among."""

SIDES = ("encoder", "cross", "decoder")
LUNA_MAPS = ("pack", "unpack", "through")
