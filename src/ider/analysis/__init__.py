"""What records say, as tables and figures. Everything here reads records only and never imports the engine.

`tables` needs neither numpy nor matplotlib; `figures` needs both, so import it only where something is drawn.
"""
