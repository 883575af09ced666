// Browsers start no worker for a page that is opened from the disk. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const answer = (data) => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        setTimeout(() => {
          this.dispatchEvent(event);
          this.onmessage?.(event);
        });
      };
      inside.document.open();
      inside.postMessage = answer;
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = resolve;
        inside.document.append(inside.document.createElement("html"));
        inside.document.documentElement.append(script);
      });
      inside.document.close();
    }
    postMessage(data) {
      const event = new MessageEvent("message", { data: structuredClone(data) });
      this.ready.then(() => setTimeout(() => this.inside.dispatchEvent(event)));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
