// A picture to edit: chosen, dropped or an example, made small before it is sent.

const MAX_SIDE = 512;

export function makePicture(drop, preview, file, complain) {
  let base64 = "";

  async function take(blob) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(blob);
    } catch {
      complain("That file is no picture that this browser can read; choose a PNG or JPEG file.");
      return;
    }
    const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    load(canvas.toDataURL("image/png").split(",")[1], blob.name || "your picture");
    complain("");
  }

  function load(data, name) {
    base64 = data;
    preview.src = `data:image/png;base64,${data}`;
    preview.alt = `The picture to edit: ${name}`;
    preview.hidden = false;
  }

  file.addEventListener("change", () => { if (file.files[0]) take(file.files[0]); });
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });

  return { load, base64: () => base64 };
}
