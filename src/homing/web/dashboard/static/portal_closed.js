// Tells the page around this one that the portal needs a new link, so that it can fetch one.
if (parent !== window) parent.postMessage({ type: "homing.portal.closed", reason: document.body.dataset.reason }, "*");
