document.getElementById("root")!.textContent = "The console of Skein";
