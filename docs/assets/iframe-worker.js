// Browsers give no worker to a page that was opened from file://. The search runs in a frame there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      const load = source => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        Object.assign(script, {src: source, onload: done, onerror: failed});
        inner.document.body.appendChild(script);
      });
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.inner = inner;
      this.loaded = load(url);
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
