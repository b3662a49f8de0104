"""Record what an independent implementation writes: Hugging Face transformers, reading the same GGUF file in float32.

Run from the repository's root (it needs the dev extra):

    python tests/lab/pin_model_tokens.py

It rewrites tests/lab/smollm2_tokens.json. ``smallest_lead`` is the smallest difference between the logits of the best
and the second token, over all tokens written: how far rounding may move them before a pinned token changes.
"""

from __future__ import annotations

import json
from pathlib import Path

PINNED = Path(__file__).with_name("smollm2_tokens.json")
PROMPTS = (
    "What is the capital of France?",
    "Count from 1 to 10.",
    "Write a haiku about the sea.",
)
MAX_NEW_TOKENS = 32


def load_transformers():
    """transformers' tokenizer and model of the GGUF file in the weights package."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from course_lab.model import weights_path

    path = weights_path()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    network = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return tokenizer, network.eval()


def record(tokenizer, network, prompt: str) -> dict:
    """Prompt tokens, greedily chosen tokens and their text, for one prompt inside the chat template."""
    chat = [{"role": "user", "content": prompt}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = network.generate(
        **inputs,
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    prompt_tokens = inputs["input_ids"][0].tolist()
    tokens = output.sequences[0, len(prompt_tokens) :].tolist()
    leads = [(best - second).item() for step in output.logits for best, second in [step[0].topk(2).values]]
    return {
        "prompt": prompt,
        "prompt_tokens": prompt_tokens,
        "tokens": tokens,
        "text": tokenizer.decode(tokens, skip_special_tokens=True),
        "smallest_lead": round(min(leads), 3),
    }


def main() -> None:
    import torch
    import transformers

    tokenizer, network = load_transformers()
    made_by = {
        "command": "python tests/lab/pin_model_tokens.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    records = ",\n".join(json.dumps(record(tokenizer, network, prompt)) for prompt in PROMPTS)
    PINNED.write_text(f'{{"made_by": {json.dumps(made_by)},\n"records": [\n{records}\n]}}\n')


if __name__ == "__main__":
    main()
