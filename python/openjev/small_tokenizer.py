"""Small tokenizers of the Qwen3.5 kind: byte-level BPE, by default with a vocabulary of 1,024.

It splits and normalizes text exactly as the real one does and has the same special tokens, so every code path
that depends on the format of a tokenizer is exercised; only its merges are few, learned from the text below.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from openjev.tokens import SPLIT_PATTERN

VOCABULARY = 1024

# In the order of their ids in the Qwen3.5 vocabulary.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)

TEXT = """\
user

assistant

system

Context:
Question: Is the customer asking for a refund?
Yes means: they want their money back
No means: they ask for anything else
Is the answer to this question yes? Answer Yes or No.
Proposed answer: billing
Is this proposed answer correct? Answer Yes or No.
Goal: Keep the files.
App: Task family: closed-candidate decision
Accessibility tree:
Options:
A. Decision "Click Cancel" -> select
B. Decision "Click Delete" -> select
Answer with a single letter.
You are shown the current state of a screen and a list of options. Choose the single best next action.

The parcel was promised for Monday and it is now Thursday. Nobody has called, and the tracking page has not
changed since the weekend. If it does not arrive tomorrow, please cancel the order and send the money back.
Thank you for the quick answer. The new charger works well, and my daughter likes the colour of the case.
I was charged twice for the same month. The invoice shows one payment, the bank two. Who can correct this?
How do I change the address of my account? I moved last week and the form only accepts the old postal code.
The app closes when I open the second page of the report. It started after the update on the first of March.
Your driver left the box in the rain, and everything inside is wet. I want a replacement, not another apology.
Please do not delete the photos before I have saved them. I pressed the wrong button and want to go back.

Which team should handle this message? The choices are billing, shipping, technical support, sales and other.
How urgent is it: not urgent at all, somewhat urgent, urgent, or very urgent because people are at risk?
Does the text contain personal data such as a name, a phone number or an address? Is the language polite?
Would a careful reader say that the statement follows from the context? Is there enough evidence to decide?
Rate the quality of the answer from low to high: wrong, partly right, mostly right, right and complete.
What should happen next: reply, wait for more information, escalate to a person, or close the ticket?

A decision model reads a state and a question and gives a probability for each possible answer. A good
probability is calibrated: of all the cases that get seventy percent, about seventy in a hundred turn out
to be true. When the state says nothing about the question, the model should be unsure, and its numbers should
show that. When two options mean the same, they share the probability. The order of options should not matter.

{"customer": "returning", "priority": "high", "items": [{"name": "lamp", "price": 40}], "note": null}
{"type": "choice", "instructions": "Which label fits best?", "criteria": {"positive": null, "negative": null}}
{"type": "score", "instructions": "How severe is the problem?", "criteria": ["none", "minor", "critical"]}
{"type": "noul", "instructions": "Is the request complete?", "criteria": {"true": "nothing is missing"}}

def total(prices, discount=0):
    return sum(price * (1 - discount) for price in prices)

window "Settings" > tab "General" > button "Save changes", button "Cancel", checkbox "Remember my choice"
https://example.com/orders/1024?page=2 support@example.com 2026-03-01 12:45 +49 30 0000000 $19.99 100%
"""


def build_tokenizer() -> Tokenizer:
    """Trains the tokenizer on `TEXT`: the same text gives the same vocabulary, merges and ids each time.

    Ids: first the 256 bytes in GPT-2's order (so "A" to "Z" are 32 to 57, as in Qwen3.5), then the merges,
    then the special tokens.
    """
    return train_tokenizer([TEXT], VOCABULARY, min_frequency=1)


def train_tokenizer(texts: Iterable[str], vocabulary: int, min_frequency: int = 2) -> Tokenizer:
    """Byte-level BPE of the Qwen3.5 kind with at most `vocabulary` entries, special tokens included.

    The 256 bytes come first, so every text encodes. A pair that occurs less than `min_frequency` times is not
    merged.
    The same texts in the same order give the same tokenizer.
    """
    tokenizer = Tokenizer(models.BPE(fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS),
        min_frequency=min_frequency,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    return tokenizer
