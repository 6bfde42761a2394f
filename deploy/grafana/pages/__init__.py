"""The dashboards as code, one module each, and the panels that they are made of."""
