// What scrolls to the side can be reached by the keyboard, and a list of sources is none to a screen reader: it has no
// items that are called so.
addEventListener("load", () => {
  for (const element of document.querySelectorAll("pre, div.math, .table-wrapper")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
  for (const element of document.querySelectorAll('.citation-list[role="list"]')) element.removeAttribute("role");
});
