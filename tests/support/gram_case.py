"""How well models of item pairs recommend, and data drawn again."""
