"""An unpacked MovieLens 100K folder with five users, four items and the five published folds."""

RATINGS = [(u, i, (u * i) % 5 + 1, 880000000 + u) for u in range(1, 6) for i in range(1, 5)]


def write_folder(folder):
    """Write five users and four items; fold f tests user f."""
    folder.mkdir()

    def write(name, rows):
        (folder / name).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))

    write("u.data", RATINGS)
    (folder / "u.user").write_text("".join(f"{u}|30|F|other|00000\n" for u in range(1, 6)))
    (folder / "u.item").write_text("".join(f"{i}|Film|01-Jan-1995|||{'|'.join('0' * 19)}\n" for i in range(1, 5)))
    for fold in range(1, 6):
        write(f"u{fold}.test", [row for row in RATINGS if row[0] == fold])
        write(f"u{fold}.base", [row for row in RATINGS if row[0] != fold])
    return folder
