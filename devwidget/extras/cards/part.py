"""What cards give to virtual GPUs."""

from devwidget.extras.cards.account import open_account
from devwidget.gpus.parts import PARTS

PARTS.open_card = open_account
