"""`python -m headrace` is the command `headrace`, of the interpreter that is named."""

from headrace.cli.main import main

if __name__ == "__main__":
    main()
