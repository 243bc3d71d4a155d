"""What the key-ordered stores share: it turns an `Engine` into a full `Storage`. It knows no concrete store."""
