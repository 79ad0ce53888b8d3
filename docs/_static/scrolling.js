// Elements that scroll sideways get the keyboard's focus. Lists of sources lose the role of a list, because their items
// do not have the role that screen readers expect.
addEventListener("load", () => {
  for (const element of document.querySelectorAll("pre, div.math, .table-wrapper")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
  for (const element of document.querySelectorAll('.citation-list[role="list"]')) element.removeAttribute("role");
});
