"""Has a fresh interpreter imitate another platform, if its environment asks for that."""

import os

if "ROOKERY_IMITATES" in os.environ:
    import imitation

    imitation.begin(os.environ["ROOKERY_IMITATES"])
