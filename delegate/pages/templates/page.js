// Conveniences only: without scripts, everything on the page can be read, opened and filtered.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  const count = () => {
    const status = document.querySelector(".shown");
    if (!status) return;
    const tasks = all(".task"), shown = tasks.filter((task) => task.checkVisibility());
    status.textContent = shown.length === tasks.length ? "" : `${shown.length} of ${tasks.length} shown`;
  };

  const search = (text) => {
    const wanted = text.toLowerCase();
    for (const task of all(".task"))
      task.hidden = wanted !== "" && !task.querySelector("summary").textContent.toLowerCase().includes(wanted);
    count();
  };

  const copy = async (button) => {
    const area = document.getElementById(button.dataset.copy);
    area.select();
    try {
      await navigator.clipboard.writeText(area.value);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.copy) copy(button);
    else if (button?.dataset.fold !== undefined)
      for (const task of all(".task")) task.open = button.dataset.fold === "open";
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (target?.matches(".task")) target.open = true;
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("select")) count();
  });
  document.addEventListener("input", (event) => {
    if (event.target.id === "find") search(event.target.value);
  });
  document.documentElement.classList.add("js");
  count();

  // Follow: load the page again every two seconds, and exchange only the tasks that have changed.
  const served = new Map(all(".task").map((task) => [task.id, task.innerHTML]));
  const exchange = (next) => {
    const ordered = all(".task", next).map((fresh) => {
      const shown = document.getElementById(fresh.id);
      if (shown && served.get(fresh.id) === fresh.innerHTML) return shown;
      served.set(fresh.id, fresh.innerHTML);
      if (shown) fresh.open = shown.open || fresh.open;
      return document.adoptNode(fresh);
    });
    document.querySelector(".tasks").replaceChildren(...ordered);
    for (const selector of [".headline", ".counts", ".note", ".lanes", ".dense", ".ticks", "main > section > .bill"]) {
      const [shown, fresh] = [document.querySelector(selector), next.querySelector(selector)];
      if (shown && fresh) shown.replaceWith(document.adoptNode(fresh));
      else if (shown) shown.remove();
    }
  };
  const follow = async () => {
    try {
      const reply = await fetch(location.href);
      if (!reply.ok) return;
      const next = new DOMParser().parseFromString(await reply.text(), "text/html");
      if (next.querySelector("style").textContent !== document.querySelector("style").textContent) {
        location.reload(); // there are more values to filter by, whose rules the policy doesn't let a script add
        return;
      }
      if (document.querySelector(".tasks")) exchange(next);
      else document.querySelector("main").replaceWith(document.adoptNode(next.querySelector("main")));
      count();
      if (!next.body.hasAttribute("data-live")) return;
    } catch {
      return; // the server has ended
    }
    setTimeout(follow, 2000);
  };
  if (document.body.hasAttribute("data-live")) setTimeout(follow, 2000);
})();
