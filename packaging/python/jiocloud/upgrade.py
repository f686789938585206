"""`python -m jiocloud.upgrade …` comes with rollouts; until then it says so."""
import sys


def main():
    sys.stderr.write(
        "jiocloud.upgrade is not available: rollouts are not part of this version of orchestrate; "
        "use `orchestrate trigger_update VERSION`\n"
    )
    return 64


if __name__ == "__main__":
    sys.exit(main())
