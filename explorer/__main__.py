"""``python -m explorer``."""

from explorer.cli.main import main

if __name__ == "__main__":
    main()
