"""`python -m jiocloud.upgrade …` becomes `orchestrate rolling_upgrade …`: same arguments, input, output, environment."""
import os
import sys


def main():
    try:
        os.execvp("orchestrate", ["orchestrate", "rolling_upgrade"] + sys.argv[1:])
    except OSError as error:
        # 2: cannot tell. The old scripts do nothing then.
        sys.stderr.write("orchestrate is not on the PATH: %s\n" % error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
