"""``fairseq-luna score`` cuts text into words as its language asks, and says how it knows the language."""

import gzip
import json
import re
import sys

import pytest
from sacrebleu.metrics import BLEU, TER

from fairseq_luna.__main__ import main
from fairseq_luna.commands.scoring.tokenizer import language_in_name
from own_command import refused, shown

# The same sentences in each, the second word of which a translation has otherwise.
TEXTS = {
    "zh": ["我们今天去看电影。", "他昨天买了一本新书。", "这只小狗在花园里跑。"] * 4,
    "ja": ["私たちは今日映画を見に行きます。", "彼は昨日新しい本を買いました。", "小さな犬が庭を走っています。"] * 4,
    "ko": ["우리는 오늘 영화를 보러 갑니다.", "그는 어제 새 책을 샀습니다.", "작은 개가 정원에서 달립니다."] * 4,
    "de": ["Wir sehen heute einen Film.", "Er kaufte gestern ein Buch.", "Ein Hund läuft im Garten."] * 4,
    "th": ["วันนี้เราจะไปดูหนัง", "เมื่อวานเขาซื้อหนังสือใหม่", "สุนัขตัวเล็กวิ่งในสวน"] * 4,
    "lo": ["ມື້ນີ້ພວກເຮົາຈະໄປເບິ່ງໜັງ", "ມື້ວານລາວຊື້ປຶ້ມໃໝ່", "ໝານ້ອຍແລ່ນຢູ່ໃນສວນ"] * 4,
    "km": ["ថ្ងៃនេះយើងទៅមើលកុន", "ម្សិលមិញគាត់ទិញសៀវភៅថ្មី", "ឆ្កែតូចរត់ក្នុងសួន"] * 4,
    "my": ["ဒီနေ့ငါတို့ရုပ်ရှင်သွားကြည့်မယ်", "မနေ့ကသူစာအုပ်အသစ်ဝယ်တယ်", "ခွေးလေးဥယျာဉ်ထဲမှာပြေးနေတယ်"] * 4,
    "bo": ["དེ་རིང་ང་ཚོ་གློག་བརྙན་བལྟ་རུ་འགྲོ", "ཁ་སང་ཁོས་དེབ་གསར་པ་ཉོས", "ཁྱི་ཆུང་ལྡུམ་རའི་ནང་རྒྱུག"] * 4,
}
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", "de": "13a"}
LANGUAGES = {"zh": "Chinese", "ja": "Japanese", "ko": "Korean"}
UNSPACED = ("th", "lo", "km", "my", "bo")


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def translated(lines):
    """The lines, of which every third one lacks a character."""
    return [line[:2] + line[3:] if number % 3 == 0 else line for number, line in enumerate(lines)]


def files(folder, text, name):
    lines = TEXTS[text]
    return write_lines(folder / "hyp", translated(lines)), write_lines(folder / name, lines)


def scores(printed):
    return {name: float(score) for score, name in re.findall(r"^ +([\d.]+)  (\w+)  nrefs:", printed, re.M)}


CODES = {
    "zh": "zh ZH zh_CN zh-CN zh_cn zh-Hans zh_Hant_TW zho chi cmn cmn_Hans zho_Hans zho_Hant zh_XX yue_Hant lzh wuu",
    "ja": "ja JA ja_JP ja-JP jpn jpn_Jpan ja_XX jpn_Hira",
    "ko": "ko ko_KR ko-KR kor kor_Hang ko_XX KO",
    "de": "de DE de_DE de-AT deu ger deu_Latn de_XX gsw",
}
CASES = [(text, code) for text, codes in CODES.items() for code in codes.split()]


@pytest.mark.parametrize(("text", "code"), CASES)
def test_a_language_is_known_by_any_of_its_codes(text, code, tmp_path, capsys):
    """As the ending of the reference's name, and as --language."""
    name = TOKENIZERS[text]
    expected = BLEU(tokenize=name, force=True).corpus_score(translated(TEXTS[text]), [TEXTS[text]]).score
    assert expected > 50
    hypothesis, plain = files(tmp_path, text, f"ref.{code}")
    zipped, unnamed = tmp_path / f"zipped.{code}.gz", tmp_path / "ref"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    unnamed.write_bytes(plain.read_bytes())
    usual = "the default, for text with spaces between words; --language or --tokenize overrides it"
    for reference, flags, said in (
        (plain, (), f"{plain} is {LANGUAGES.get(text)} by its name; --language overrides it"),
        (zipped, (), f"{zipped} is {LANGUAGES.get(text)} by its name; --language overrides it"),
        (unnamed, ("--language", code), f"--language {code}"),
    ):
        printed = shown(capsys, "score", hypothesis, "--reference", reference, *flags)
        assert printed.startswith(f"tokenizer {name}: {usual if text == 'de' and not flags else said}\n")
        assert f"|tok:{name}" in printed
        assert scores(printed)["sacreBLEU"] == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    "name", ["reference.txt", "reference", "ref.detok", "ref.raw", "ref.jp", "ref.cn", "ref.kr", "ref.2"]
)
@pytest.mark.parametrize("text", TOKENIZERS)
def test_without_a_language_the_letters_decide(text, name, tmp_path, capsys):
    """Such endings are no languages, or others than the text's."""
    hypothesis, reference = files(tmp_path, text, name)
    printed = shown(capsys, "score", hypothesis, "--reference", reference)
    assert printed.startswith(f"tokenizer {TOKENIZERS[text]}: ")
    assert ("by their letters" in printed) == (text != "de")
    assert scores(printed)["sacreBLEU"] > 50


@pytest.mark.parametrize("name", ["test.zh.txt", "test.zh.txt.gz", "test.zh-Hans.tok", "x.de-zh.zh.ref"])
def test_the_language_may_stand_before_an_ending_of_text(name, tmp_path):
    assert language_in_name(tmp_path / name) in ("zh", "zh-Hans")
    assert language_in_name(tmp_path / "test.zh-en.en") == "en"
    assert language_in_name(tmp_path / "translations.txt") is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_of_another_writing_than_the_language_is_doubted(language, tmp_path, capsys):
    hypothesis, reference = files(tmp_path, "de", "ref")
    assert main(["score", str(hypothesis), "--reference", str(reference), "--language", language]) == 0
    [warning] = capsys.readouterr().err.splitlines()
    assert f"no line of {reference} is in {LANGUAGES[language]} by its letters" in warning


@pytest.mark.parametrize(("marker", "mark"), [("@@", "{}@@ {}"), ("\u2581", "\u2581{} {}")])
def test_a_reference_in_pieces_is_doubted(marker, mark, tmp_path, capsys):
    pieces = [" ".join(mark.format(word[:1], word[1:]) for word in line.split()) for line in TEXTS["de"]]
    reference = write_lines(tmp_path / "ref", pieces)
    assert main(["score", str(reference), "--reference", str(reference)]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert any(f"{reference} looks like subword pieces ({marker})" in warning for warning in warnings)


def test_latin_words_in_chinese_and_chinese_names_in_english_do_not_mislead(tmp_path, capsys):
    chinese = ["我们用PyTorch训练Transformer模型。", "OpenAI发布了新的GPT模型。", "今天天气很好。"] * 4
    english = ["Li Wei (李伟) said so.", "He came from Beijing (北京) yesterday.", "It rained."] * 4
    for lines, name in ((chinese, "zh"), (english, "13a")):
        reference = write_lines(tmp_path / "ref.txt", lines)
        assert shown(capsys, "score", reference, "--reference", write_lines(tmp_path / "other", lines)).startswith(
            f"tokenizer {name}: "
        )


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("jp", "; did you mean ja (JP is a country)?"),
        ("cn", "; did you mean zh (CN is a country)?"),
        ("chinese", "; did you mean zh?"),
        ("English", "; did you mean en?"),
        ("zh_CN.UTF-8", "; did you mean zh_CN?"),
        ("de_AT@euro", "; did you mean de_AT?"),
        ("xx", ""),
        ("zh_", ""),
        ("", ""),
        ("zh_ZH", ""),
        ("text", ""),
        ("foo", ""),
        ("test.zh", ""),
    ],
)
def test_what_is_no_language_is_refused(code, advice, tmp_path, capsys):
    hypothesis, reference = files(tmp_path, "zh", "ref.zh")
    said = refused(capsys, "score", hypothesis, "--reference", reference, "--language", code)
    assert (
        said == f"--language {code}: is not a language code of ISO 639; "
        f"give a code such as de, zh_CN, jpn or zho_Hans{advice}"
    )


def warned(capsys, *arguments):
    capsys.readouterr()
    assert main(["score", *map(str, arguments)]) == 0
    output = capsys.readouterr()
    return output.out, re.findall(r"warning: (.*)", output.err)


@pytest.mark.parametrize("text", UNSPACED)
@pytest.mark.parametrize("flags", [(), ("--language", "{}"), ("--tokenize", "13a"), ("--language", "en")])
def test_text_without_spaces_is_not_scored_by_words_in_silence(text, flags, tmp_path, capsys):
    hypothesis, reference = files(tmp_path, text, f"ref.{text}" if len(flags) == 0 else "ref")
    given = [flag.format(text) for flag in flags]
    printed, warnings = warned(capsys, hypothesis, "--reference", reference, *given)
    assert printed.startswith("tokenizer 13a: ")
    assert (
        f"100% of the lines of {reference} are in a script without spaces between words, which the tokenizer 13a does "
        "not split into words: trust chrF2, not BLEU, or give --tokenize char or flores200"
    ) in warnings
    printed, warnings = warned(capsys, hypothesis, "--reference", reference, "--tokenize", "char")
    assert printed.startswith("tokenizer char: --tokenize char\n") and scores(printed)["sacreBLEU"] > 50
    assert warnings == []


@pytest.mark.parametrize(("text", "advice"), [("zh", "zh"), ("ja", "ja"), ("ko", "ko")])
@pytest.mark.parametrize("language", ["de", "th"])
def test_another_language_than_the_texts_is_noticed(text, advice, language, tmp_path, capsys):
    hypothesis, reference = files(tmp_path, text, "ref")
    _, warnings = warned(capsys, hypothesis, "--reference", reference, "--language", language)
    assert any(line.endswith(f"trust chrF2, not BLEU, or give --language {advice}") for line in warnings)
    _, warnings = warned(capsys, hypothesis, "--reference", reference, "--tokenize", "13a")
    assert bool(warnings) == (text != "ko")  # whose words have spaces between them


def test_a_tenth_of_the_lines_is_enough_for_a_warning(tmp_path, capsys):
    lines = [*TEXTS["de"] * 3, *TEXTS["th"][:4]]
    reference = write_lines(tmp_path / "ref.de", lines)
    _, warnings = warned(capsys, write_lines(tmp_path / "hyp", lines), "--reference", reference)
    assert [line[:4] for line in warnings] == ["10% "]


def test_several_references_share_a_tokenizer(tmp_path, capsys):
    hypothesis, first = files(tmp_path, "zh", "first.txt")
    second = write_lines(tmp_path / "second.zh_TW", TEXTS["zh"])
    printed = shown(capsys, "score", hypothesis, "--reference", first, second, "--json", tmp_path / "scores.json")
    assert printed.startswith(f"tokenizer zh: {second} is Chinese by its name")
    kept = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert (kept["tokenizer"], kept["references"]) == ("zh", [str(first), str(second)])


def test_ter_counts_chinese_characters(tmp_path, capsys):
    hypothesis, reference = files(tmp_path, "zh", "ref.zh")
    metric = TER(normalized=True, asian_support=True)
    expected = metric.corpus_score(translated(TEXTS["zh"]), [TEXTS["zh"]]).score
    printed = shown(capsys, "score", hypothesis, "--reference", reference, "--ter")
    assert scores(printed)["TER"] == pytest.approx(expected, abs=0.005)
    assert "norm:yes|punct:yes|asian:yes" in printed
    _, warnings = warned(capsys, *files(tmp_path, "th", "ref")[:1], "--reference", tmp_path / "ref", "--ter")
    assert f"TER counts words between spaces, which 100% of the lines of {tmp_path / 'ref'} do not have" in warnings


@pytest.mark.parametrize(("text", "module"), [("ja", "tokenizer_ja_mecab"), ("ko", "tokenizer_ko_mecab")])
def test_a_missing_library_of_a_tokenizer_is_one_line(text, module, tmp_path, capsys, monkeypatch):
    hypothesis, reference = files(tmp_path, text, f"ref.{text}")
    monkeypatch.setattr(f"sacrebleu.tokenizers.{module}.MeCab", None)
    said = refused(capsys, "score", hypothesis, "--reference", reference)
    assert said.startswith(f"tokenizer {TOKENIZERS[text]}: ") and f"pip install sacrebleu[{text}]" in said


@pytest.mark.parametrize("name", ["langcodes", "regex"])
def test_a_missing_library_is_one_line(name, tmp_path, capsys, monkeypatch):
    hypothesis, reference = files(tmp_path, "de", "ref.de")
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "fairseq_luna.commands.scoring.tokenizer", raising=False)
    said = refused(capsys, "score", hypothesis, "--reference", reference)
    assert said == f"{name} is not installed: pip install {name}"


def test_a_model_that_cannot_be_downloaded_is_one_line(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", fail)
    hypothesis, reference = files(tmp_path, "th", "ref.th")
    said = refused(capsys, "score", hypothesis, "--reference", reference, "--tokenize", "flores200")
    assert said == "tokenizer flores200: sacreBLEU cannot download its model: no network"
