"""`python -m glassformer`, which torchrun needs."""

from glassformer.cli import main

if __name__ == "__main__":
    main()
