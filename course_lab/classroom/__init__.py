"""A class graded safely: `course grade SUBMISSIONS --out RESULTS`, `course league`.

- `submissions`   what learners handed in, read without believing any of it
- `bubble`, `inside`, `frames`   the sandbox of one submission, its first process, the messages between the two
- `verdicts`, `reach`, `spent`   one submission graded by the course's own check; what an answer reaches for; time spent
- `pool`, `cluster`, `one`   graders on this machine, or on many
- `results`   what is on disk, whole at every moment
- `pages`     CSV, JUnit XML, the instructor's page, a page for each learner
- `run`       all of it together
"""
