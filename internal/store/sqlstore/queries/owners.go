package queries

// OfNamespace is the condition that a row belongs to a namespace by its UID, or that nobody knows yet to which one it belongs. It takes the
// UID twice; "" stands for any namespace.
const OfNamespace = ` AND (CAST(? AS TEXT) = '' OR namespace_uid IN ('', ?))`
