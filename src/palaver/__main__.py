"""`python -m palaver`: the command line."""

from palaver.cli import main

if __name__ == "__main__":
    main()
