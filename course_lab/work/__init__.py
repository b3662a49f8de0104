"""A learner's own copies of the notebooks, in work/, which git does not track; see `refresh`.

- `copies`   where the copies are, and which file's answer counts
- `refresh`  makes them and brings them up to date
- `choose`   which answers `course check` grades
- `in_place` lets nobody change a tracked lesson by running it
- `tracked`  puts the tracked notebooks back as they were committed, so that `git pull` goes through
- `signatures` let JupyterLab show the stored pictures
"""

from course_lab.work.copies import FOLDERS, answer_file, work_folder
from course_lab.work.refresh import SyncReport, sync

__all__ = ["FOLDERS", "SyncReport", "answer_file", "sync", "work_folder"]
