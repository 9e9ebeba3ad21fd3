package bench

// databases that the store's figures are taken on.
var databases = []database{sqlite}
