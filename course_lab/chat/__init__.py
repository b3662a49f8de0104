"""The model talks: whose kernels it runs on (`assembly`), on which engine (`engines`), with whom (`conversation`).

from course_lab.chat import Conversation, Engine

talk = Conversation(Engine("simulator", "gfx942"), mine=True)
for text in talk.answer("What is the capital of France?"):
    print(text, end="", flush=True)
"""

from course_lab.chat.assembly import Assembly
from course_lab.chat.conversation import Conversation, Said
from course_lab.chat.engines import ENGINES, Engine

__all__ = ["ENGINES", "Assembly", "Conversation", "Engine", "Said"]
