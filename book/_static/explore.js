// The numbers of a figure, drawn as the reader chooses: what stands upright, across, and in colour.
// The figure itself and the table below it need no script.
const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDE = 640, HIGH = 300, LEFT = 58, BOTTOM = 34, TOP = 10, RIGHT = 10;

function rowsOf(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|$)/g)) {
    const cell = quoted === undefined ? plain : quoted.replaceAll('""', '"');
    rows.at(-1).push(cell.replace(/^'(?=[=+\-@\t\r])/, "")); // a mark for spreadsheets
    if (end !== ",") { if (end === "") break; rows.push([]); }
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

function read(link) {
  const bytes = Uint8Array.from(atob(link.href.split(",")[1]), (c) => c.charCodeAt(0));
  const [names, ...rows] = rowsOf(new TextDecoder().decode(bytes));
  return names.map((name, place) => {
    const values = rows.map((row) => row[place] ?? "");
    const numbers = values.map((value) => (value === "" ? NaN : Number(value)));
    const numeric = numbers.every((one, i) => values[i] === "" || !Number.isNaN(one))
      && numbers.some((one) => !Number.isNaN(one));
    return { name: name || "row", values, numbers, numeric, kinds: [...new Set(values)] };
  });
}

function element(name, attributes, ...children) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function choice(label, options, onChange) {
  const select = document.createElement("select");
  for (const [value, text] of options) select.add(new Option(text, value));
  select.addEventListener("change", onChange);
  const around = document.createElement("label");
  around.append(`${label} `, select);
  return [around, select];
}

function scale(column) {
  const places = column.numeric ? column.numbers : column.values.map((v) => column.kinds.indexOf(v));
  const known = places.filter((one) => !Number.isNaN(one));
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = (most - least || 1) * 0.06;
  const ticks = column.numeric
    ? [0, 1, 2, 3, 4].map((i) => least + ((most - least) * i) / 4)
    : column.kinds.map((_, i) => i);
  return {
    places,
    at: (value) => (value - least + room) / (most - least + 2 * room),
    ticks: [...new Set(ticks)],
    say: (tick) => (column.numeric ? String(Number(tick.toPrecision(3))) : column.kinds[tick]),
  };
}

// A table with a column for each thing that was compared, as one long column of numbers.
function melted(columns, numeric) {
  const rows = columns[0].values.length;
  const repeat = (values) => numeric.flatMap(() => values);
  const long = columns.filter((one) => !one.numeric)
    .map((one) => ({ ...one, values: repeat(one.values), numbers: repeat(one.numbers) }));
  const names = numeric.flatMap((one) => Array(rows).fill(one.name));
  const numbers = numeric.flatMap((one) => one.numbers);
  const kinds = numeric.map((one) => one.name);
  return [...long, { name: "column", values: names, numbers: [], numeric: false, kinds },
    { name: "number", values: numbers.map(String), numbers, numeric: true, kinds: [] }];
}

function draw(picture, said, columns, across, upright, series) {
  const [x, y] = [scale(across), scale(upright)];
  const toX = (value) => LEFT + x.at(value) * (WIDE - LEFT - RIGHT);
  const toY = (value) => HIGH - BOTTOM - y.at(value) * (HIGH - BOTTOM - TOP);
  picture.replaceChildren();
  const few = x.ticks.length > 8 ? x.ticks.filter((_, i) => i % Math.ceil(x.ticks.length / 8) === 0) : x.ticks;
  for (const tick of few) {
    const text = x.say(tick);
    picture.append(element("text", { x: toX(tick), y: HIGH - 16, "text-anchor": "middle" },
      text.length > 14 ? `${text.slice(0, 13)}…` : text));
  }
  for (const tick of y.ticks) {
    picture.append(element("line", { x1: LEFT, x2: WIDE - RIGHT, y1: toY(tick), y2: toY(tick) }));
    const text = y.say(tick);
    picture.append(element("text", { x: LEFT - 6, y: toY(tick) + 4, "text-anchor": "end" },
      text.length > 8 ? `${text.slice(0, 7)}…` : text));
  }
  picture.append(element("text", { x: WIDE - RIGHT, y: HIGH - 2, "text-anchor": "end", class: "name" }, across.name));
  y.places.forEach((value, row) => {
    if (Number.isNaN(value) || Number.isNaN(x.places[row])) return;
    const words = columns.map((one) => `${one.name}: ${one.values[row]}`).join(" · ");
    const kind = series ? series.kinds.indexOf(series.values[row]) : 0;
    const dot = element("circle", { cx: toX(x.places[row]), cy: toY(value), r: 4.5, class: `kind-${kind % 6}` },
      element("title", {}, words));
    dot.addEventListener("pointerenter", () => { said.textContent = words; });
    picture.append(dot);
  });
}

function explore(fold) {
  const link = fold.querySelector("a.cde-csv");
  let columns = link ? read(link) : [];
  let numeric = columns.filter((one) => one.numeric);
  if (!numeric.length || columns[0].values.length < 2) return;
  if (columns.length - numeric.length === 1 && numeric.length > 2 && columns[0].kinds.length === columns[0].values.length) {
    columns = melted(columns, numeric);
    numeric = [columns.at(-1)];
  }
  const box = document.createElement("div");
  box.className = "cde-explore";
  const picture = element("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
  const said = document.createElement("output");
  const legend = document.createElement("p");
  const named = (some) => some.map((one) => [columns.indexOf(one), one.name]);
  const words = columns.filter((one) => !one.numeric && one.kinds.length <= 12);
  const again = () => {
    const [across, upright] = [columns[chosenAcross.value], columns[chosenUpright.value]];
    const series = columns[chosenSeries.value];
    draw(picture, said, columns, across, upright, series);
    picture.setAttribute("aria-label", `${upright.name} by ${across.name}; the table below has the numbers`);
    legend.replaceChildren();
    for (const [place, kind] of (series?.kinds ?? []).entries()) {
      const entry = document.createElement("span");
      entry.className = `kind-${place % 6}`;
      entry.textContent = kind;
      legend.append(entry, " ");
    }
    said.textContent = "Point at a dot for its numbers.";
  };
  const [a, chosenUpright] = choice("upright", named(numeric), again);
  const [b, chosenAcross] = choice("across", named(columns), again);
  const [c, chosenSeries] = choice("colour", [["-1", "none"], ...named(words)], again);
  chosenUpright.value = columns.indexOf(numeric.at(-1));
  chosenAcross.value = columns.indexOf(numeric.length > 1 ? numeric[0] : columns[0]);
  const series = words.find((one) => one !== columns[chosenAcross.value]) ?? words[0];
  if (series) chosenSeries.value = columns.indexOf(series);
  box.append(a, b, c, picture, legend, said);
  fold.querySelector("summary").after(box);
  again();
}

document.addEventListener("DOMContentLoaded", () => {
  for (const fold of document.querySelectorAll(".cde-figure details")) {
    fold.addEventListener("toggle", () => explore(fold), { once: true });
  }
});
