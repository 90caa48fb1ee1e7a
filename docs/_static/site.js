// The style sheet of Debian's furo knows the dark theme by its name alone, and not a reader's preference for it.
document.addEventListener("DOMContentLoaded", () => {
  const { dataset } = document.body;
  if (dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches) dataset.theme = "dark";
});
