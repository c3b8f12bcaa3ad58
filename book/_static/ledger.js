// The page Claims: filters, sorts, and opens the claim that the address names. What is chosen stands
// in the address as a query; see book/cde_book/templates/claims.html.j2.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form.cde-filters");
  const list = document.querySelector(".cde-claims ul");
  if (!form || !list) return;
  const claims = [...list.children];
  const fields = [...form.querySelectorAll("[name]")];
  const filters = [...form.querySelectorAll("[data-filter]")];
  const said = form.querySelector("output");
  const text = new Map(claims.map((c) => [c, `${c.id} ${c.textContent}`.toLowerCase()]));

  // a claim's place among the options of a filter; what has no value comes last
  const rank = (claim, name) => {
    const at = [...form.elements[name].options].findIndex((o) => o.value === claim.dataset[name]);
    return claim.dataset[name] ? at : Infinity;
  };
  const place = (claim) => Number(claim.dataset.place);

  const apply = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const claim of claims) {
      const fits = filters.every((f) => !f.value || claim.dataset[f.name] === f.value)
        && words.every((word) => text.get(claim).includes(word));
      claim.hidden = !fits;
      shown += fits;
    }
    said.textContent = `${shown} of ${claims.length} claims`;
  };
  const sort = () => {
    const by = form.elements.sort.value || "verdict";
    const key = (claim) => (by === "place" ? 0 : rank(claim, by));
    const sorted = [...claims].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      return left === right ? place(a) - place(b) : left - right;
    });
    list.append(...sorted);
  };
  const read = () => {
    const asked = new URLSearchParams(location.search);
    for (const field of fields) {
      const value = asked.get(field.name) || "";
      const known = !field.options || [...field.options].some((o) => o.value === value);
      field.value = known ? value : "";
    }
  };
  const write = () => {
    const chosen = new URLSearchParams();
    for (const field of fields) if (field.value) chosen.set(field.name, field.value);
    const query = chosen.size ? `?${chosen}` : "";
    try {
      history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
    } catch {
      // a browser that lets no page change the address of a file: the filters work all the same
    }
  };
  const show = () => {
    const claim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!claims.includes(claim)) return;
    if (claim.hidden) form.reset();
    claim.querySelector("details").open = true;
    claim.scrollIntoView();
  };

  form.addEventListener("input", () => { apply(); write(); });
  form.elements.sort.addEventListener("input", sort);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    for (const field of fields) field.value = "";
    sort(); apply(); write();
  });
  window.addEventListener("hashchange", show);
  form.hidden = false;
  read(); sort(); apply(); show();
});
