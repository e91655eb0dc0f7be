// Search in a site that is opened from a disk. Browsers start no worker there, so the script of mkdocs-material's search
// runs in a frame that nobody sees. (Its plugin `offline` would otherwise load one of this name from a server.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<body></body>";
      this.inside = new Promise((resolve) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          const script = inside.document.createElement("script");
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          script.onload = () => resolve(inside);
          script.src = address;
          inside.document.body.append(script);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
