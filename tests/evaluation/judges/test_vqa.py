"""VQAScore with a tiny LLaVA of random weights, beside its own forward pass."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from remask.evaluation.judges.vqa import VqaConfig, vqa_scores

WORDS = ["<unk>", "<s>", "</s>", "<pad>", "<image>", "was", "this", "edited", "yes", "no", "Yes"]
QUESTION = "<image> was this edited {instruction}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("llava")
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )
    pictures = CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    LlavaProcessor(
        pictures, words, patch_size=4, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(path)  # fmt: skip
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
            image_size=8, patch_size=4, projection_dim=8,
        ),
        text_config=LlamaConfig(
            vocab_size=len(WORDS), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, pad_token_id=3,
        ),
        image_token_index=4,
        vision_feature_layer=-1,
    )  # fmt: skip
    LlavaForConditionalGeneration(config).save_pretrained(path)
    return str(path)


def test_the_score_is_the_probability_of_yes(folder):
    pictures = [np.full((8, 8, 3), level, np.uint8) for level in (0, 255)]
    config = VqaConfig(model=folder, question=QUESTION)
    scores = vqa_scores(config, pictures, ["yes", "no"])
    model = LlavaForConditionalGeneration.from_pretrained(folder).eval()
    processor = LlavaProcessor.from_pretrained(folder)
    for picture, said, score in zip(pictures, ("yes", "no"), scores, strict=True):
        inputs = processor(
            images=picture, text=QUESTION.format(instruction=said), return_tensors="pt"
        )
        with torch.no_grad():
            chances = model(**inputs).logits[0, -1].softmax(-1)
        assert score == pytest.approx(float(chances[8] + chances[10]), abs=1e-6)
    assert 0 < scores[0] < 1
    assert scores[0] != scores[1]


def test_questions_use_the_chat_template(folder, tmp_path):
    """The same words around the question by a template, which also begins the text."""
    processor = LlavaProcessor.from_pretrained(folder)
    processor.tokenizer.bos_token = "<s>"
    processor.chat_template = (
        "<s> {% for part in messages[0]['content'] %}"
        "{% if part['type'] == 'image' %}<image> {% else %}was {{ part['text'] }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %} no{% endif %}"
    )
    chatty = tmp_path / "chatty"
    processor.save_pretrained(chatty)
    LlavaForConditionalGeneration.from_pretrained(folder).save_pretrained(chatty)
    picture = np.full((8, 8, 3), 90, np.uint8)
    (asked,) = vqa_scores(
        VqaConfig(model=str(chatty), question="this {instruction}"), [picture], ["yes"]
    )
    plain = VqaConfig(model=folder, question="<s> <image> was this {instruction} no")
    assert asked == pytest.approx(vqa_scores(plain, [picture], ["yes"])[0], abs=1e-6)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="cannot load the VQA model .*nowhere"):
        vqa_scores(VqaConfig(model=str(tmp_path / "nowhere")), [], [])
    with pytest.raises(ValueError, match="cannot load the VQA model .*nowhere"):
        VqaConfig(model=str(tmp_path / "nowhere")).check()
    with pytest.raises(ValueError, match="question must contain {instruction}, got 'Good"):
        VqaConfig(model="x", question="Good?")


def test_the_identity_follows_the_folder_and_the_question(folder):
    identity = VqaConfig(model=folder, question=QUESTION).identity()
    assert folder not in repr(identity)
    VqaConfig(model=folder).check()
    assert identity != VqaConfig(model=folder).identity()
