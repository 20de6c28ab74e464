"""`python -m rota`: the command line where the installed command is not on the PATH."""

from rota.cli.main import main

main()
