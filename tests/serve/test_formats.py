"""Files: their sentences come out, and the file with others in their place is the same but for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lxml import etree

from glassformer.serve.documents import archive, xml
from glassformer.serve.documents.formats import FORMATS, MAX_TEXT_BYTES
from glassformer.serve.documents.passages import Passage
from glassformer.serve.documents.placing import Links
from glassformer.serve.refusal import Refusal
from serve.office import PICTURE, WORD, docx, entries, odt, run, zipped
from serve.test_placing import words_of


def shouted(passage: Passage) -> Passage:
    """In capitals, each word linked to itself."""
    words = words_of(passage.text)
    return passage.filled(passage.text.upper(), Links(words, words, np.eye(len(words))))


def backwards(passage: Passage) -> Passage:
    """The words in the opposite order, each linked to itself."""
    words = [passage.text[start:end] for start, end in words_of(passage.text)]
    text = " ".join(words[::-1])
    return passage.filled(text, Links(words_of(passage.text), words_of(text), np.eye(len(words))[::-1]))


def through(suffix: str, content: bytes, change: Callable[[Passage], Passage] = shouted) -> bytes:
    document = FORMATS[suffix](content)
    return document.filled([change(passage) for passage in document.passages])


def texts_of(suffix: str, content: bytes) -> list[str]:
    return [passage.text for passage in FORMATS[suffix](content).passages]


def test_lines_of_a_text_keep_their_ends_and_their_indentation() -> None:
    content = "\ufeffOne line.\r\n\r\n  - two \t\r\n***\r\nlast".encode()
    assert texts_of(".txt", content) == ["One line.", "- two", "last"]
    assert through(".txt", content) == "\ufeffONE LINE.\r\n\r\n  - TWO \t\r\n***\r\nLAST".encode()
    for codec in ("utf-16", "utf-8"):
        assert through(".txt", "é < a\n".encode(codec)).decode(codec) == "É < A\n"


def test_a_page_keeps_its_encoding() -> None:
    content = '<meta charset="iso-8859-1"><p>caf\xe9 <b>noir</b></p>'.encode("latin-1")
    assert texts_of(".html", content) == ["café noir"]
    assert through(".html", content) == '<meta charset="iso-8859-1"><p>CAF\xc9 <b>NOIR</b></p>'.encode("latin-1")
    (passage,) = FORMATS[".html"](content).passages
    assert b"&#8212;" in FORMATS[".html"](content).filled([passage.filled("\u2014 a", None)])
    for wrong in (b'<meta charset="nothing">a', b"\xff\xfe\xfd", "<meta charset=utf-8>é".encode("latin-1"), b"a\0b"):
        with pytest.raises(Refusal, match="file: it is no text"):
            FORMATS[".html"](wrong)


def test_subtitles_keep_numbers_times_and_lines() -> None:
    content = (
        b"1\n00:00:01,000 --> 00:00:02,500\n<i>This is a sentence\nof two lines.</i>\n\n"
        b"2\n00:00:03,000 --> 00:00:04,000 X1:40\n- Is it 5?\n- Yes & no <3\n\n\n"
        b"3\n00:00:05,000 --> 00:00:06,000\n{\\an8}2024\n\n4\n00:00:07,000 --> 00:00:08,000\n"
    )
    assert texts_of(".srt", content) == ["This is a sentence of two lines.", "- Is it 5?", "- Yes & no <3", "2024"]
    made = through(".srt", content).decode()
    assert made == content.decode().replace("This is a sentence\nof two lines.", "THIS IS A SENTENCE\nOF TWO LINES.") \
        .replace("Is it", "IS IT").replace("Yes & no", "YES & NO")  # fmt: skip
    windows = content.replace(b"\n", b"\r\n")
    assert through(".srt", windows) == made.replace("\n", "\r\n").encode()


def paragraphs(content: bytes, part: str = "word/document.xml") -> list[list[tuple[str, str]]]:
    """The runs of each paragraph: text or name of what it holds, and the names of its format."""
    found = []
    for paragraph in etree.fromstring(entries(content)[part]).iter(f"{{{WORD}}}p"):
        runs = []
        for one in paragraph.iter(f"{{{WORD}}}r"):
            names = [etree.QName(p).localname for p in one.iterfind(f"{{{WORD}}}rPr/*")]
            held = [child for child in one if child.tag != f"{{{WORD}}}rPr"]
            runs.append(("".join(child.text or f"<{etree.QName(child).localname}>" for child in held), " ".join(names)))
        found.append(runs)
    return found


BOLD, ITALIC = "<w:b/>", "<w:i/>"


def test_runs_that_word_has_cut_are_one_sentence() -> None:
    body = (
        f"<w:p><w:pPr><w:jc/></w:pPr>{run('We e')}<w:proofErr/>{run('at ', '<w:lang/>')}{run('black ', BOLD)}"
        f"{run('bread', BOLD)}{run(' in the garden.')}</w:p><w:p/><w:p>{run('*** ')}</w:p>"
    )
    content = docx(body, header1=f"<w:p>{run('A head')}</w:p>")
    assert texts_of(".docx", content) == ["We eat black bread in the garden.", "A head"]
    made = through(".docx", content)
    assert paragraphs(made)[0] == [("WE EAT ", ""), ("BLACK BREAD", "b"), (" IN THE GARDEN.", "")]
    assert paragraphs(made)[1:] == [[], [("*** ", "")]]
    assert paragraphs(made, "word/header1.xml") == [[("A HEAD", "")]]
    assert b"<w:pPr><w:jc/></w:pPr>" in entries(made)["word/document.xml"]
    assert paragraphs(through(".docx", content, backwards))[0] == [
        (". garden the in ", ""), ("bread black", "b"), (" eat We", "")]  # fmt: skip
    before, after = entries(content), entries(made)
    assert list(before) == list(after) and after["word/media/image1.png"] == PICTURE


def test_links_notes_pictures_and_breaks_of_word() -> None:
    link = f'<w:hyperlink r:id="r5">{run("this ", ITALIC)}{run("page", ITALIC)}</w:hyperlink>'
    note = '<w:r><w:rPr><w:vertAlign/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    body = (
        f"<w:p>{run('See ')}{link}{note}{run(' now')}<w:bookmarkStart w:id='1'/><w:r><w:br/></w:r>{run('Second')}"
        f"<w:r><w:tab/></w:r>{run('third')}<w:del>{run('gone')}</w:del><w:ins>{run(' new')}</w:ins></w:p>"
    )
    content = docx(body)
    assert texts_of(".docx", content) == ["See this page now", "Second", "third new"]
    assert paragraphs(through(".docx", content))[0] == [
        ("SEE ", ""), ("THIS PAGE", "i"), ("<footnoteReference>", "vertAlign"), (" NOW", ""), ("<br>", ""),
        ("SECOND", ""), ("<tab>", ""), ("THIRD", ""), ("gone", ""), (" ", ""), ("NEW", ""),
    ]  # fmt: skip
    made = entries(through(".docx", content, backwards))["word/document.xml"].decode()
    (inside,) = re.findall(r'<w:hyperlink r:id="r5">(.*?)</w:hyperlink>', made)
    assert "page this" in inside and made.count("footnoteReference") == made.count("bookmarkStart") == 1


def mark(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def test_fields_of_word_stay_whole() -> None:
    def field(code: str, result: str) -> str:
        code = f"<w:r><w:instrText>{code}</w:instrText></w:r>"
        return mark("begin") + code + mark("separate") + run(result) + mark("end")

    body = (
        f"<w:p>{run('Page ')}{field(' PAGE ', '7')}{run(' of the book')}</w:p>"
        f"<w:p>{run('A ')}{field(' HYPERLINK x ', 'link')}{run(' to it')}</w:p>"
        f"<w:p>{mark('begin')}<w:r><w:instrText> TOC </w:instrText></w:r>{mark('separate')}{run('One')}</w:p>"
        f"<w:p>{run('Two')}{mark('end')}</w:p>"
    )
    content = docx(body)
    assert texts_of(".docx", content) == ["Page of the book", "A link to it", "One", "Two"]
    for change in (shouted, backwards):
        made = entries(through(".docx", content, change))["word/document.xml"].decode()
        assert re.findall('fldCharType="(.*?)"', made) == re.findall('fldCharType="(.*?)"', body)
    assert ">7<" in made and " PAGE " in made
    (linked,) = re.findall(r"HYPERLINK x .*?separate(.*?)end", made)
    assert ">link<" in linked and ">to" not in linked


def test_a_text_box_has_paragraphs_of_its_own() -> None:
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('In the box')}</w:p></w:txbxContent></w:pict></w:r>"
    content = docx(f"<w:p>{run('Around ')}{box}{run('it')}</w:p>")
    assert texts_of(".docx", content) == ["Around it", "In the box"]
    made = entries(through(".docx", content))["word/document.xml"].decode()
    assert re.findall(r">([^<>]+)</w:t>", made) == ["AROUND ", "IN THE BOX", "IT"]


def test_opendocument() -> None:
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:h>A<text:s text:c="3"/>title</text:h>'
        '<text:p>We <text:span text:style-name="T1">eat <text:a>black</text:a></text:span> bread'
        "<text:note><text:note-body>"
        "<text:p>A note.</text:p></text:note-body></text:note>.<text:line-break/>Then <draw:frame/> we go.</text:p>"
        "<text:p>42<text:s/><text:s/>—</text:p><text:p>—<text:s/><text:s/>—</text:p>"
    )
    content = odt(body, "<text:p>A foot</text:p>")
    assert texts_of(".odt", content) == ["A title", "We eat black bread.", "Then we go.", "A note.", "42 —", "A foot"]
    made = through(".odt", content)
    (text,) = re.findall(r"<office:text>(.*)</office:text>", entries(made)["content.xml"].decode())
    expected = body.replace('A<text:s text:c="3"/>title', "A title").replace("42<text:s/><text:s/>", "42 ")
    for part in ("A title", "We ", "eat ", "black", " bread", "A note", "Then", "we go"):
        expected = expected.replace(f">{part}", f">{part.upper()}").replace(f" {part}", f" {part.upper()}")
    assert text == expected
    assert b"A FOOT" in entries(made)["styles.xml"]
    assert entries(made)["Pictures/a.png"] == PICTURE
    assert made[:100].startswith(b"PK\x03\x04") and b"mimetypeapplication/vnd.oasis.opendocument.text" in made[:100]


def test_signs_that_xml_has_not_are_left_out() -> None:
    for suffix, content in ((".docx", docx(f"<w:p>{run('one')}</w:p>")), (".odt", odt("<text:p>one</text:p>"))):
        made = through(suffix, content, lambda passage: passage.filled("\x00a\x1f\ufffe<&>\U0001f41f"))
        assert any("a&lt;&amp;&gt;\U0001f41f".encode() in part for part in entries(made).values()), suffix


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def word(document: str) -> bytes:
    return zipped({"word/document.xml": document})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no document that can be read"),
        (b"PK\x03\x04 and then nothing", "no document that can be read"),
        (docx("")[:-30], "no document that can be read"),
        (docx("").replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"), "encrypted"),
        (zipped({"a.txt": "a"}), "holds no"),
        (word("<a>"), "not well-formed"),
        (word(f"{BOMB}<a>&b;</a>"), "defines a document type"),
        (word('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'), "defines a document type"),
        (word("<a>" * 5000 + "</a>" * 5000), "not well-formed, or too deep"),
        (zipped({f"{i}": "" for i in range(archive.MAX_ENTRIES + 1)}), "at most 2000"),
        (zipped({"word/document.xml": bytes(archive.MAX_BYTES + 1)}), "at most 2000 of 67108864 are taken"),
        (zipped({"word/document.xml": b" " * (xml.MAX_BYTES + 1)}), "at most 16777216 are taken"),
    ],
)
def test_what_is_no_document_or_a_trap_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        FORMATS[".docx"](content)


def test_an_entry_that_says_it_is_small_is_not_unpacked_further() -> None:
    """Its header lies: it says one byte, and holds a hundred million."""
    content = bytearray(zipped({"word/document.xml": bytes(100_000_000)}))
    size = (100_000_000).to_bytes(4, "little")
    for start in [match.start() for match in re.finditer(re.escape(size), bytes(content))]:
        content[start : start + 4] = (1).to_bytes(4, "little")
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(Refusal, match="no document that can be read"):
        FORMATS[".docx"](bytes(content))
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_texts_are_bounded() -> None:
    for suffix in (".txt", ".html", ".srt"):
        with pytest.raises(Refusal, match="larger than 2097152 bytes"):
            FORMATS[suffix](bytes(MAX_TEXT_BYTES + 1))


def test_nothing_is_taken_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    document = f'<w:document xmlns:w="{WORD}" xmlns:xi="http://www.w3.org/2001/XInclude"><w:body><w:p>{run("one")}' \
        f'<xi:include href="{tmp_path}/secret" parse="text"/></w:p></w:body></w:document>'  # fmt: skip
    assert b"secret<" not in entries(through(".docx", word(document)))["word/document.xml"]
