// The pages can be read as files. A browser starts no worker for a file, so the search runs in a frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.addEventListener("message", (event) => {
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      this.ready = new Promise((done) => frame.addEventListener("load", () => done(frame.contentWindow)));
      frame.srcdoc = `<script>
        self.postMessage = (data) => frameElement.dispatchEvent(new MessageEvent("message", { data }));
        self.importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: done, onerror: failed });
          document.head.append(script);
        })));
      <\/script><script src="${url}"><\/script>`;
      document.body.append(frame);
    }
    postMessage(data) {
      this.ready.then((frame) => frame.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
