// A question's vector and ranking, as an encoder reads one document after the other: cde_book.slider
// has computed every state, this picks the one that a reader asks for. The figure above needs no script.
function slide(box) {
  const { corpora, axes } = JSON.parse(box.dataset.drawn);
  const [picture, list, range, said] = ["svg", "ol", "input[type=range]", "output"].map((one) => box.querySelector(one));
  const places = Object.values(corpora).flatMap((one) => one.places);
  const ends = [0, 1].map((i) => {
    const some = places.map((one) => one[i]);
    const [least, most] = [Math.min(...some), Math.max(...some)];
    return [least - 0.12 * (most - least), most + 0.12 * (most - least)];
  });
  const x = (value) => 46 + (284 * (value - ends[0][0])) / (ends[0][1] - ends[0][0]);
  const y = (value) => 232 - (222 * (value - ends[1][0])) / (ends[1][1] - ends[1][0]);

  function add(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    picture.append(made);
  }

  function drawAxes() {
    add("path", { d: "M46 10V232H330", class: "axes" });
    add("text", { x: 330, y: 270, "text-anchor": "end" }, axes[0]);
    add("text", { x: 12, y: 10, transform: "rotate(-90 12 10)", "text-anchor": "end" }, axes[1]);
    ends.forEach(([least, most], upright) => {
      for (let tick = Math.ceil(least * 10); tick <= most * 10; tick += 1) {
        const at = upright
          ? { x: 40, y: y(tick / 10) + 4, "text-anchor": "end" }
          : { x: x(tick / 10), y: 250, "text-anchor": "middle" };
        add("text", at, (tick / 10).toFixed(1));
      }
    });
  }

  function drawPaths(chosen, count) {
    Object.values(corpora).forEach((corpus, number) => {
      const shown = corpus === chosen ? corpus.places.slice(0, count + 1) : corpus.places;
      const kind = `path-${number % 2}${corpus === chosen ? "" : " other"}`;
      add("polyline", { points: shown.map((one) => `${x(one[0])},${y(one[1])}`).join(" "), class: kind });
    });
    const [across, upright] = chosen.places[count];
    add("circle", { cx: x(across), cy: y(upright), r: 7, class: `path-${Object.values(corpora).indexOf(chosen) % 2}` });
  }

  function entry({ documents, answer }, which, rank, score, isRead) {
    const [item, note, bar] = ["li", "small", "i"].map((name) => document.createElement(name));
    note.textContent = ` ${score.toFixed(2)}${isRead ? ", read" : ""}`;
    bar.style.width = `${Math.max(score, 0) * 100}%`;
    item.append(`${rank}. ${documents[which]}`, note, bar);
    if (which === answer) item.className = "answer";
    return item;
  }

  function draw() {
    const name = box.querySelector("input[type=radio]:checked").value;
    const chosen = corpora[name], count = Number(range.value);
    const scores = chosen.scores[count], read = chosen.order.slice(0, count);
    const ranked = scores.map((_, i) => i).sort((one, other) => scores[other] - scores[one]);
    picture.replaceChildren();
    drawAxes();
    drawPaths(chosen, count);
    list.replaceChildren(...ranked.map((one, place) => entry(chosen, one, place + 1, scores[one], read.includes(one))));
    const at = chosen.places[count].map((value) => value.toFixed(2));
    picture.setAttribute("aria-label", `${axes[0]} ${at[0]}, ${axes[1]} ${at[1]}`);
    said.textContent = `${count} of the ${name} read: the answer has rank ${ranked.indexOf(chosen.answer) + 1}.`;
  }

  box.addEventListener("input", draw);
  box.hidden = false;
  draw();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".cde-slider").forEach(slide));
