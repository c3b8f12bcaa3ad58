// Filters of the page Claims: a row is shown if it matches every choice.
document.addEventListener("DOMContentLoaded", () => {
  const choices = [...document.querySelectorAll("[data-filter]")];
  const rows = [...document.querySelectorAll(".cde-ledger tbody tr")];
  const said = document.querySelector(".cde-filters output");
  if (!choices.length) return;
  const apply = () => {
    let shown = 0;
    for (const row of rows) {
      const fits = choices.every((c) => !c.value || row.dataset[c.dataset.filter] === c.value);
      row.hidden = !fits;
      shown += fits;
    }
    said.textContent = `${shown} of ${rows.length} claims`;
  };
  for (const choice of choices) choice.addEventListener("change", apply);
  apply();
});
