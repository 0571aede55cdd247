"""The page's only script: sorting, filtering and opening everything for the printer."""

from __future__ import annotations

__all__ = ["SCRIPT"]

# It reads numbers and text of the page and writes only order, visibility and counts: no markup is ever made of data.
SCRIPT = """
(function () {
  "use strict";
  var root = document.querySelector(".xr");
  root.classList.add("js");
  function all(selector, at) { return Array.prototype.slice.call((at || root).querySelectorAll(selector)); }
  var table = root.querySelector("#candidates table");
  if (table) {
    var body = table.tBodies[0];
    var rows = all("tr", body);
    var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
    var search = root.querySelector("#search");
    var boxes = all(".controls input[type=checkbox]");
    var status = root.querySelector("#status");
    var filter = function () {
      var words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
      var actions = boxes.filter(function (b) { return b.checked; }).map(function (b) { return b.value; });
      var shown = 0;
      rows.forEach(function (row, i) {
        var keep = actions.indexOf(row.dataset.action) >= 0 &&
          words.every(function (w) { return texts[i].indexOf(w) >= 0; });
        row.hidden = !keep;
        if (keep) { shown += 1; }
      });
      status.textContent = shown + " of " + rows.length + " candidates shown";
    };
    var reset = function () {
      search.value = "";
      boxes.forEach(function (b) { b.checked = true; });
      filter();
    };
    search.addEventListener("input", filter);
    boxes.forEach(function (b) { b.addEventListener("change", filter); });
    root.querySelector("#reset").addEventListener("click", reset);
    // A link to a row that a filter hides must still lead there.
    window.addEventListener("hashchange", function () {
      var target = document.getElementById(location.hash.slice(1));
      if (target && target.hidden) { reset(); target.scrollIntoView(); }
    });
    var heads = all("thead th", table);
    var value = function (row, column) {
      var v = row.cells[column].dataset.v;
      return v === undefined ? row.cells[column].textContent.toLowerCase() : v === "" ? null : Number(v);
    };
    heads.forEach(function (head, column) {
      var button = head.querySelector("button");
      if (!button) { return; }
      button.addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(function (h) { if (h.hasAttribute("aria-sort")) { h.setAttribute("aria-sort", "none"); } });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        rows.map(function (row, i) { return [value(row, column), i, row]; }).sort(function (a, b) {
          if (a[0] === null || b[0] === null) { return (a[0] === null) - (b[0] === null) || a[1] - b[1]; }
          if (a[0] === b[0]) { return a[1] - b[1]; }
          return (a[0] < b[0] ? -1 : 1) * (down ? -1 : 1);
        }).forEach(function (entry) { body.appendChild(entry[2]); });
      });
    });
    filter();
  }
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = all("details:not([open])");
    opened.forEach(function (d) { d.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
  });
})();
"""
