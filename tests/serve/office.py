"""Small .docx and .odt files, made by hand."""

from __future__ import annotations

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/>'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
PACKAGE = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="r1" Type="{RELATIONS}/officeDocument" Target="word/document.xml"/></Relationships>'
)
ODF = "urn:oasis:names:tc:opendocument:xmlns"
PICTURE = b"\x89PNG\r\n" + bytes(range(256))


def zipped(entries: dict[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return made.getvalue()


def entries(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def docx(body: str, **parts: str) -> bytes:
    """A document of paragraphs; further parts, such as header1, are given whole."""
    document = f'<w:document xmlns:w="{WORD}" xmlns:r="{RELATIONS}"><w:body>{body}<w:sectPr/></w:body></w:document>'
    more = {f"word/{name}.xml": f'<w:hdr xmlns:w="{WORD}">{part}</w:hdr>' for name, part in parts.items()}
    return zipped(
        {"[Content_Types].xml": TYPES, "_rels/.rels": PACKAGE, "word/document.xml": document}
        | more
        | {"word/media/image1.png": PICTURE}
    )


def run(text: str, properties: str = "") -> str:
    properties = properties and f"<w:rPr>{properties}</w:rPr>"
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def odt(body: str, styles: str = "") -> bytes:
    spaces = f'xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0" xmlns:draw="{ODF}:drawing:1.0"'
    text = f"<office:body><office:text>{body}</office:text></office:body>"
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {spaces}>{text}</office:document-content>",
            "styles.xml": f"<office:document-styles {spaces}>{styles}</office:document-styles>",
            "Pictures/a.png": PICTURE,
        }
    )
