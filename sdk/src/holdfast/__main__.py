"""python -m holdfast"""

from holdfast._cli import main

main()
