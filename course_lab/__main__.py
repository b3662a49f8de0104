"""`python -m course_lab` is the command `course`."""

from course_lab.cli import main

if __name__ == "__main__":
    main()
