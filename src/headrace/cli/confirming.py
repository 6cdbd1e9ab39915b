"""What a command says that would destroy something, where nobody can be asked."""

from headrace.base.errors import PlanError


class NotConfirmed(PlanError):
    """Something would be destroyed, and standard input is not a terminal: nobody can confirm it."""

    condition = "NOT_CONFIRMED"
